"""Expert maps brought to the replicas of a deployment, one replica at a time.  docs/expert-maps.md draws it.

`roll` decides (pure), `roller` reads and writes, `keeper` is the replica's side, `serve_engine` puts a keeper into a
Ray Serve deployment and `telling` lets the application's ingress say what its replicas say.  The replica's side is
light to import: engines' images hold little of ours.
"""
