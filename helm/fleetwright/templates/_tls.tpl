{{/* Certificates of servers: an existing Secret, or one that cert-manager writes. */}}

{{/* Secret with tls.crt, tls.key and ca.crt of a component's server, or nothing. */}}
{{- define "fleetwright.tlsSecret" -}}
{{- if hasKey .values "tls" -}}
{{- if .values.tls.existingSecret -}}
{{- .values.tls.existingSecret -}}
{{- else if .root.Values.certManager.enabled -}}
{{- include "fleetwright.objectName" . -}}-tls
{{- end -}}
{{- end -}}
{{- end -}}
