{{/* The configuration file of one guard: its config with the mode, the paths of tokens and certificates, and where its agents are. */}}
{{- define "fleetwright.guardFile" -}}
{{- $guard := .values -}}
{{- $file := dict "mode" (ternary "apply" "observe" $guard.apply) -}}
{{- $_ := set $file "row" (default .entry $guard.config.row) -}}
{{- $agentTls := include "fleetwright.agentTlsSecret" . -}}
{{- if not $guard.config.agents -}}
{{- $discover := dict "service" (include "fleetwright.agentService" .) "port" (int .root.Values.agent.port) "scheme" (ternary "https" "http" (not (empty $agentTls))) "duty" $guard.agents.duty "forget_s" $guard.agents.forgetSeconds -}}
{{- with $guard.agents.serverName -}}{{- $_ := set $discover "server_name" . -}}{{- end -}}
{{- with $guard.agents.model -}}{{- $_ := set $discover "model" . -}}{{- end -}}
{{- $_ := set $file "discover" $discover -}}
{{- end -}}
{{- if $guard.agentToken.existingSecret -}}
{{- $_ := set $file "agent_token_file" "/etc/fleetwright/agent-token/token" -}}
{{- end -}}
{{- if $agentTls -}}
{{- $folder := "/etc/fleetwright/agent-tls" -}}
{{- $_ := set $file "agent_tls" (dict "authority" (printf "%s/ca.crt" $folder) "certificate" (printf "%s/tls.crt" $folder) "key" (printf "%s/tls.key" $folder)) -}}
{{- end -}}
{{- if $guard.budgetToken.existingSecret -}}
{{- $_ := set $file "budget_token_file" "/etc/fleetwright/budget-token/token" -}}
{{- end -}}
{{- if .callsApi -}}
{{- $_ := set $file "budgets_from" (dict "url" (include "fleetwright.apiUrl" .root) "token_file" "/etc/fleetwright/api-token/token") -}}
{{- end -}}
{{- merge $file $guard.config | toJson -}}
{{- end -}}

{{/* The headless Service of a guard's agents: the given one, or that of the agents of its row, or that of all agents of the release. */}}
{{- define "fleetwright.agentService" -}}
{{- if .values.agents.service -}}
{{- .values.agents.service -}}
{{- else -}}
{{- $entry := ternary .entry "" (hasKey .root.Values.agent.rows .entry) -}}
{{- include "fleetwright.objectName" (dict "root" .root "component" "agent" "entry" $entry) -}}.{{ .root.Release.Namespace }}.svc
{{- end -}}
{{- end -}}

{{/* Secret with the certificate that the guard presents to agents: the given one, or that of cert-manager for both. */}}
{{- define "fleetwright.agentTlsSecret" -}}
{{- if .values.agentTls.existingSecret -}}
{{- .values.agentTls.existingSecret -}}
{{- else if and .root.Values.certManager.enabled .root.Values.agent.enabled (not .root.Values.agent.tls.existingSecret) (not .values.config.agents) -}}
{{- include "fleetwright.tlsSecret" . -}}
{{- end -}}
{{- end -}}

{{/* Volumes with tokens of a component, one for each of `tokens` whose Secret is given: (dict "values" … "tokens" (list "agent" …)). */}}
{{- define "fleetwright.tokenMounts" -}}
{{- $values := .values -}}
{{- range .tokens }}
{{- if (index $values (printf "%sToken" .)).existingSecret }}
- name: {{ . }}-token
  mountPath: /etc/fleetwright/{{ . }}-token
  readOnly: true
{{- end }}
{{- end }}
{{- if .callsApi }}
- name: api-token
  mountPath: /etc/fleetwright/api-token
  readOnly: true
{{- end }}
{{- end -}}

{{- define "fleetwright.tokenVolumes" -}}
{{- $values := .values -}}
{{- range .tokens }}
{{- $token := index $values (printf "%sToken" .) }}
{{- if $token.existingSecret }}
{{ include "fleetwright.tokenVolume" (dict "volume" (printf "%s-token" .) "name" $token.existingSecret "key" $token.key) }}
{{- end }}
{{- end }}
{{- if .callsApi }}
{{ include "fleetwright.apiTokenVolume" (dict "root" .root "token" $values.apiToken "volume" "api-token") }}
{{- end }}
{{- end -}}
