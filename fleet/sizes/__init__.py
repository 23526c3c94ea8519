"""Request sizes: histograms of prompt and output lengths, their sources, presets and mixtures."""
