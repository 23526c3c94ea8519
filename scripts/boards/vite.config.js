import react from "@vitejs/plugin-react";

export default {
  plugins: [react()],
  base: "./",
  build: { outDir: "dist", target: "es2022", minify: false, chunkSizeWarningLimit: 20000 },
};
