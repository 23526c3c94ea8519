{{/* The configuration file of the router: its config with the path of the table. */}}
{{- define "fleetwright.routerFile" -}}
{{- merge (dict "table_file" (printf "/etc/fleetwright/routing-table/%s" .values.table.key)) .values.config | toJson -}}
{{- end -}}
