"""A question about a row of servers behind a budget, and its answer: `power.whatif.run.study`.

`question` and `answer` are what crosses borders; `run` puts work, policy, guard and simulator together.
"""
