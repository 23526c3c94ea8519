"""Power tree, curves and policies in; caps and budgets out.  The map of the room is docs/power/index.md."""
