{{/* Egress rules of NetworkPolicies, derived from configured URLs. */}}

{{/*
Rules for a list of URLs.  A policy applies to the ports of pods, which the URL of a Service does not contain: a host
NAME.NAMESPACE.svc, or one without dots, allows the pods of that namespace; any other host allows its port at any address.
A host with one dot may be either.
*/}}
{{- define "fleetwright.egressTo" -}}
{{- $ports := list -}}
{{- $namespaces := list -}}
{{- range . -}}
{{- $url := urlParse . -}}
{{- $host := regexReplaceAll "(^\\[|\\]?:[0-9]+$|\\]$)" $url.host "" -}}
{{- $labels := splitList "." $host -}}
{{- if and (regexMatch "^[a-z0-9-]+[.][a-z0-9-]+([.]svc([.].+)?)?$" $host) (regexMatch "[a-z]" (last $labels)) (or (eq (len $labels) 2) (eq (index $labels 2) "svc")) -}}
{{- $namespaces = append $namespaces (index $labels 1) -}}
{{- end -}}
{{- if and (eq (len $labels) 1) (regexMatch "^[a-z]" $host) -}}
{{- $namespaces = append $namespaces "" -}}
{{- else if not (and (gt (len $labels) 2) (eq (index $labels 2) "svc")) -}}
{{- $port := regexFind ":[0-9]+$" $url.host | trimPrefix ":" -}}
{{- $ports = append $ports (int (default (ternary 443 80 (eq $url.scheme "https")) $port)) -}}
{{- end -}}
{{- end -}}
{{- range uniq $namespaces }}
- to:
    {{- if . }}
    - namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: {{ . | quote }}}}
    {{- else }}
    - podSelector: {}
    {{- end }}
{{- end }}
{{- with uniq $ports | sortAlpha }}
- ports:
    {{- range . }}
    - {protocol: TCP, port: {{ . }}}
    {{- end }}
{{- end }}
{{- end -}}

{{/* Destinations of one component besides DNS. */}}
{{- define "fleetwright.egress" -}}
{{- $policy := .root.Values.networkPolicy -}}
{{- if .callsApi }}
{{- if .root.Values.api.enabled }}
- to:
    - podSelector:
        matchLabels:
          {{- include "fleetwright.selectorLabels" (dict "root" .root "component" "api") | nindent 10 }}
  ports:
    - {protocol: TCP, port: 8400}
{{- else }}
{{- include "fleetwright.egressTo" (list .root.Values.externalApi.url) }}
{{- end }}
{{- end }}
{{- if .callsKubernetes }}
# The Kubernetes API, whose address differs between clusters.
- ports:
    - {protocol: TCP, port: 443}
    - {protocol: TCP, port: 6443}
{{- end }}
{{- if has .component (list "api" "migrate") }}
{{- with $policy.apiEgress }}
{{ toYaml . }}
{{- end }}
{{- else if eq .component "worker" }}
{{- with $policy.workerEgress }}
{{ toYaml . }}
{{- end }}
{{- else if eq .component "controller" }}
{{- include "fleetwright.egressTo" .values.urls }}
{{- with $policy.controllerEgress }}
{{ toYaml . }}
{{- end }}
{{- else if eq .component "guard" }}
{{- include "fleetwright.guardEgress" . }}
{{- with $policy.guardEgress }}
{{ toYaml . }}
{{- end }}
{{- else if eq .component "remediation" }}
{{- with .values.rayPeers }}
- to:
    {{- toYaml . | nindent 4 }}
{{- end }}
{{- else if eq .component "router" }}
{{- include "fleetwright.routerEgress" . }}
{{- else if eq .component "health-events" }}
{{- with .values.webhook.url }}
{{- include "fleetwright.egressTo" (list .) }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Agents that are found: their port, at the addresses of nodes; agents with URLs, and the meter: the ports of the URLs. */}}
{{- define "fleetwright.guardEgress" -}}
{{- $config := .values.config -}}
{{- $urls := list -}}
{{- with $config.meter -}}{{- $urls = append $urls . -}}{{- end -}}
{{- $ports := list -}}
{{- range $config.agents -}}
{{- $port := regexFind ":[0-9]+/?$" .url | trimAll ":/" -}}
{{- $ports = append $ports (int (default (ternary 443 80 (hasPrefix "https" .url)) $port)) -}}
{{- end -}}
{{- if not $config.agents -}}{{- $ports = append $ports (int .root.Values.agent.port) -}}{{- end -}}
{{- include "fleetwright.egressTo" $urls }}
{{- with uniq $ports }}
- ports:
    {{- range . }}
    - {protocol: TCP, port: {{ . }}}
    {{- end }}
{{- end }}
{{- end -}}

{{- define "fleetwright.routerEgress" -}}
{{- $urls := list -}}
{{- with dig "watts" "url" "" .values.config -}}{{- $urls = append $urls . -}}{{- end -}}
{{- range $_, $engines := .values.config.engines -}}
{{- if kindIs "map" $engines }}
- to:
    - namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: {{ $engines.namespace | quote }}}}
  ports:
    - {protocol: TCP, port: {{ int (default 8000 $engines.port) }}}
{{- else -}}
{{- $urls = concat $urls $engines -}}
{{- end -}}
{{- end -}}
{{- include "fleetwright.egressTo" $urls }}
{{- end -}}
