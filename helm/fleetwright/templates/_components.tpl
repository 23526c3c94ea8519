{{/*
The components that this release runs, as a JSON list.  Each has its name, the entry of its map if it is one of several, its
values with all defaults, the port of its metrics, whether it calls the API, and whether it calls Kubernetes.
*/}}
{{- define "fleetwright.components" -}}
{{- $v := .Values -}}
{{- $all := list -}}
{{- if $v.api.enabled -}}
{{- $all = append $all (dict "component" "api" "values" $v.api "port" 8400 "callsKubernetes" $v.auth.kubernetes.enabled) -}}
{{- end -}}
{{- if include "fleetwright.hasWorkers" . -}}
{{- $all = append $all (dict "component" "worker" "values" $v.worker "port" 9408) -}}
{{- end -}}
{{- if $v.controller.enabled -}}
{{- $all = append $all (dict "component" "controller" "values" $v.controller "port" 9401 "callsApi" true "callsKubernetes" (or $v.controller.kubernetes.enabled $v.controller.customResources.enabled)) -}}
{{- end -}}
{{- if $v.agent.enabled -}}
{{- range $row, $given := default (dict "" dict) $v.agent.rows -}}
{{- $values := deepCopy $v.agent -}}
{{- $_ := set $values "nodeSelector" (merge (deepCopy (default dict $given.nodeSelector)) $values.nodeSelector) -}}
{{- $all = append $all (dict "component" "agent" "entry" $row "values" $values "port" (int $values.port)) -}}
{{- end -}}
{{- end -}}
{{- range $name, $given := $v.powerGuards -}}
{{- $values := deepCopy (default dict $given) -}}
{{- include "fleetwright.fill" (dict "values" $values "defaults" $v.powerGuardDefaults) -}}
{{- $callsApi := or $values.apiToken.existingSecret (not $v.api.enabled) -}}
{{- $all = append $all (dict "component" "guard" "entry" $name "values" $values "port" 9402 "callsApi" (not (empty $callsApi))) -}}
{{- end -}}
{{- range $name, $given := $v.faultMonitors -}}
{{- $values := deepCopy (default dict $given) -}}
{{- include "fleetwright.fill" (dict "values" $values "defaults" $v.faultMonitorDefaults) -}}
{{- $callsApi := and $values.names (or $values.apiToken.existingSecret (not $v.api.enabled)) -}}
{{- $all = append $all (dict "component" "fault-monitor" "entry" $name "values" $values "port" 9404 "callsApi" (not (empty $callsApi))) -}}
{{- end -}}
{{- range $name, $given := $v.remediators -}}
{{- $values := deepCopy (default dict $given) -}}
{{- include "fleetwright.fill" (dict "values" $values "defaults" $v.remediatorDefaults) -}}
{{- $all = append $all (dict "component" "remediation" "entry" $name "values" $values "port" 9407 "callsApi" true "callsKubernetes" $values.kubernetes.enabled) -}}
{{- end -}}
{{- if $v.router.enabled -}}
{{- $inPods := false -}}
{{- range $_, $engines := default dict $v.router.config.engines -}}
{{- $inPods = or $inPods (kindIs "map" $engines) -}}
{{- end -}}
{{- $all = append $all (dict "component" "router" "values" $v.router "port" 9406 "callsKubernetes" $inPods) -}}
{{- end -}}
{{- if $v.healthEvents.enabled -}}
{{- $all = append $all (dict "component" "health-events" "values" $v.healthEvents "port" 9409 "callsApi" true "callsKubernetes" $v.healthEvents.kubernetes.enabled) -}}
{{- end -}}
{{- if $v.kueuePower.enabled -}}
{{- $all = append $all (dict "component" "kueue-power" "values" $v.kueuePower "port" 9410 "callsApi" true "callsKubernetes" true) -}}
{{- end -}}
{{- toJson $all -}}
{{- end -}}

{{/* The components of one name, as a JSON list: (dict "root" $ "component" "guard"). */}}
{{- define "fleetwright.componentsNamed" -}}
{{- $found := list -}}
{{- range include "fleetwright.components" .root | fromJsonArray -}}
{{- if eq .component $.component -}}{{- $found = append $found . -}}{{- end -}}
{{- end -}}
{{- toJson $found -}}
{{- end -}}

{{/* "true" if workers have pods of their own. */}}
{{- define "fleetwright.hasWorkers" -}}
{{- if and .Values.api.enabled .Values.worker.enabled (eq .Values.database.type "postgresql") -}}true{{- end -}}
{{- end -}}

{{/* "true" if a Job migrates the database. */}}
{{- define "fleetwright.hasMigration" -}}
{{- if and .Values.api.enabled (eq .Values.database.type "postgresql") .Values.migrations.enabled -}}true{{- end -}}
{{- end -}}

{{/* "true" for a switch that is true, or auto and the condition holds: (dict "switch" .enabled "auto" true). */}}
{{- define "fleetwright.isOn" -}}
{{- if eq (toString .switch) "auto" -}}{{- if .auto -}}true{{- end -}}{{- else if .switch -}}true{{- end -}}
{{- end -}}
