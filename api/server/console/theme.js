// Applies the stored theme before the first paint; without one, the style sheet follows the system.
(() => {
  try {
    const theme = localStorage.getItem("fleetwright-theme");
    if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
  } catch {
    // Storage is blocked: the system's theme applies.
  }
})();
