"""The controller as a detached actor of a Ray cluster, and one watcher actor on each of its nodes.

`names` and `wire` are what actors are called and what is said to them, as plain JSON; `cluster` is all that is asked of
Ray, behind one small port.  `looping` and `controlling` run the controller in a thread of its own, `host` is the actor
around them.  `watchers` and `keeping` say which nodes need a watcher and see to it; `node_watcher` is the actor of one
node, which looks at sockets, Ray's workers and GPUs and acts on nothing.  `commands` start, stop, upgrade and list.
"""
