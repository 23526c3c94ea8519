{{/* The guard's configuration file: guard.config with the mode and the paths of tokens and certificates. */}}
{{- define "fleetwright.guardFile" -}}
{{- $guard := .Values.guard -}}
{{- $file := dict "mode" (ternary "apply" "observe" $guard.apply) -}}
{{- if $guard.agentToken.existingSecret -}}
{{- $_ := set $file "agent_token_file" "/etc/fleetwright/agent-token/token" -}}
{{- end -}}
{{- if $guard.agentTls.existingSecret -}}
{{- $folder := "/etc/fleetwright/agent-tls" -}}
{{- $_ := set $file "agent_tls" (dict "authority" (printf "%s/ca.crt" $folder) "certificate" (printf "%s/tls.crt" $folder) "key" (printf "%s/tls.key" $folder)) -}}
{{- end -}}
{{- if $guard.budgetToken.existingSecret -}}
{{- $_ := set $file "budget_token_file" "/etc/fleetwright/budget-token/token" -}}
{{- end -}}
{{- if $guard.apiToken.existingSecret -}}
{{- $_ := set $file "budgets_from" (dict "url" (include "fleetwright.apiUrl" .) "token_file" "/etc/fleetwright/api-token/token") -}}
{{- end -}}
{{- merge $file $guard.config | toJson -}}
{{- end -}}
