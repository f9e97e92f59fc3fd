"""Small pictures of the worked examples, one per chapter, drawn from what the example's own program found.

A picture function reads variables of the program, and states that the program took from the reference. So a picture
cannot show anything that did not happen. ``python -m kvspec.pictures`` draws all of them into ``spec/pictures``.
"""
