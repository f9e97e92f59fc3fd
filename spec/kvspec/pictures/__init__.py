"""Small pictures of the worked examples, one per chapter, drawn from what the example's own program found.

A picture function reads values that the program left behind, and states that it took of the reference: so a picture
cannot show anything that did not happen. ``python -m kvspec.pictures`` draws all of them into ``spec/pictures``.
"""
