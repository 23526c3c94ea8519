"""What runs inside an inference engine or hands it its files.  Light to import: engines' images hold little of ours."""
