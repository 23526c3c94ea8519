"""Power tree, curves and policies in; caps and budgets out."""
