"""``python -m kvspec.pictures``: draw all pictures anew."""

from kvspec.pictures.gallery import write

write()
