"""Tests of the processes of the product as an operator runs them: started, used and killed."""
