"""What goes wrong between a client and a server."""


class ClientError(Exception):
    """The server gave no usable answer; the message is one sentence for the user.

    Attributes:
        may_pass: bool. Whether the same question may be answered a moment later: the connection was
            refused or lost, or the server has too much to do.
    """

    def __init__(self, message, may_pass=False):
        super().__init__(" ".join(message.split()))
        self.may_pass = may_pass
