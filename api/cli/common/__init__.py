"""What several commands share: files, options, output, errors, connections."""
