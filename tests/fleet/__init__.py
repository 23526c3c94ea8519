"""Tests of the shared data model: documents, catalogues, topologies, sizes and traces."""
