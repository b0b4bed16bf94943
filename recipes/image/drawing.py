"""Images beside one another in a picture."""

import math

import numpy as np

from keras_attn.ops.atomic_files import atomic_file

# In pixels of the picture: what a small image is enlarged to, at least, and the gap around it.
LEAST_SIZE, GAP = 48, 4


def write_grid(images, num_values, path):
    """Writes images (N, H, W, 1 or 3) of the values 0 .. `num_values` - 1 in rows, as a PNG."""
    from matplotlib.image import imsave

    with atomic_file(path) as temporary:
        imsave(temporary, arranged(images, num_values))


def arranged(images, num_values):
    """The picture, uint8 (H, W, 3), as near to a square as whole rows of images are."""
    images = np.round(np.asarray(images) * (255 / (num_values - 1))).astype("uint8")
    number, height, width, channels = images.shape
    enlarged = max(1, -(-LEAST_SIZE // max(height, width)))
    images = images.repeat(enlarged, axis=1).repeat(enlarged, axis=2)
    columns = math.ceil(math.sqrt(number))
    rows = -(-number // columns)
    tile = height * enlarged + GAP, width * enlarged + GAP
    picture = np.full((rows * tile[0] + GAP, columns * tile[1] + GAP, 3), 128, "uint8")
    for index, image in enumerate(images):
        top, left = GAP + index // columns * tile[0], GAP + index % columns * tile[1]
        picture[top : top + image.shape[0], left : left + image.shape[1]] = image
    return picture
