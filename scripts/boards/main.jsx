// Draws one board, `?board=NAME`, with the panels of Perses.  `boards/NAME.json` comes from perses.py.

import { CssBaseline, ThemeProvider } from "@mui/material";
import { ChartsProvider, SnackbarProvider, generateChartsTheme, getTheme } from "@perses-dev/components";
import { Dashboard, DashboardProvider, DatasourceStoreProvider, VariableProvider } from "@perses-dev/dashboards";
import { PluginRegistry, TimeRangeProvider, dynamicImportPluginLoader } from "@perses-dev/plugin-system";
import * as prometheus from "@perses-dev/prometheus-plugin";
import * as stat from "@perses-dev/stat-chart-plugin";
import * as statusHistory from "@perses-dev/status-history-chart-plugin";
import * as table from "@perses-dev/table-plugin";
import * as timeSeries from "@perses-dev/timeseries-chart-plugin";
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { createRoot } from "react-dom/client";
import { BrowserRouter } from "react-router-dom";

const PLUGINS = [prometheus, stat, statusHistory, table, timeSeries].map((plugin) => ({
  resource: plugin.getPluginModule(),
  importPlugin: async () => plugin,
}));
const theme = getTheme("light");
const queries = new QueryClient({ defaultOptions: { queries: { refetchOnWindowFocus: false, retry: 0 } } });

function Board({ board }) {
  const source = { kind: "GlobalDatasource", metadata: { name: "prometheus" }, spec: board.datasource };
  const datasources = {
    getDatasource: async () => undefined,
    getGlobalDatasource: async () => source,
    listDatasources: async () => [],
    listGlobalDatasources: async () => [source],
    buildProxyUrl: () => board.datasource.plugin.spec.directUrl,
  };
  return (
    <BrowserRouter>
      <ThemeProvider theme={theme}>
        <CssBaseline />
        <ChartsProvider chartsTheme={generateChartsTheme(theme, {})}>
          <SnackbarProvider>
            <PluginRegistry pluginLoader={dynamicImportPluginLoader(PLUGINS)}>
              <QueryClientProvider client={queries}>
                <TimeRangeProvider timeRange={{ pastDuration: board.range }}>
                  <VariableProvider>
                    <DatasourceStoreProvider dashboardResource={board.dashboard} datasourceApi={datasources}>
                      <DashboardProvider initialState={{ dashboardResource: board.dashboard, isEditMode: false }}>
                        <Dashboard />
                      </DashboardProvider>
                    </DatasourceStoreProvider>
                  </VariableProvider>
                </TimeRangeProvider>
              </QueryClientProvider>
            </PluginRegistry>
          </SnackbarProvider>
        </ChartsProvider>
      </ThemeProvider>
    </BrowserRouter>
  );
}

const name = new URLSearchParams(window.location.search).get("board");
const board = await (await fetch(`boards/${name}.json`)).json();
createRoot(document.getElementById("root")).render(<Board board={board} />);
