"""Expert loads and topology in; replica counts and slots out.

`placement.pipeline.place` is the one entry, from a `Question` to a `Placement`; import it late, as it loads compiled
code.
"""
