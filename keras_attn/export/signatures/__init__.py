"""Models as graph functions, those behind the signatures of an export."""
