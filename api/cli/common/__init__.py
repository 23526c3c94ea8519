"""Contains what several commands share: files, options, output, errors and connections."""
