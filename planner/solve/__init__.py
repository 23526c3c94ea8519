"""Solvers for the mix problem: `dispatch` chooses among integer programming and the specialised methods."""
