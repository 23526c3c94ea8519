// Names of the size presets that ship with the planner (`fleet.sizes.presets`); a test compares them.
export const PRESETS = ["azure-conversation", "azure-code", "mooncake-conversation", "mooncake-synthetic", "arxiv-summarisation"];
