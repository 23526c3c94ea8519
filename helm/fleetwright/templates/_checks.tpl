{{/* Rules between values, which values.schema.json cannot express.  One error lists all violations. */}}
{{- define "fleetwright.checks" -}}
{{- $problems := list -}}
{{- range $old, $new := dict "guard" "powerGuards" "watcher" "faultMonitors" "faultMonitor" "faultMonitors" "healer" "remediators" "remediation" "remediators" -}}
{{- if (default dict (get $.Values $old)).enabled -}}
{{- $problems = append $problems (printf "%s is from an older chart: move it to an entry of %s, see UPGRADE.md" $old $new) -}}
{{- end -}}
{{- end -}}
{{- $components := include "fleetwright.components" . | fromJsonArray -}}
{{- if .Values.api.enabled -}}
{{- $database := .Values.database -}}
{{- if eq $database.type "sqlite" -}}
{{- if gt (int .Values.api.replicas) 1 -}}
{{- $problems = append $problems (printf "api.replicas is %d, but database.type sqlite allows 1: use postgresql for more" (int .Values.api.replicas)) -}}
{{- end -}}
{{- if .Values.api.autoscaling.enabled -}}
{{- $problems = append $problems "api.autoscaling.enabled is true, but database.type sqlite allows one replica: use postgresql" -}}
{{- end -}}
{{- if gt (int .Values.worker.replicas) 1 -}}
{{- $problems = append $problems (printf "worker.replicas is %d, but with database.type sqlite the API runs one worker itself: use postgresql for more" (int .Values.worker.replicas)) -}}
{{- end -}}
{{- if not .Values.worker.enabled -}}
{{- $problems = append $problems "worker.enabled is false, but with database.type sqlite no worker can run elsewhere: use postgresql" -}}
{{- end -}}
{{- if .Values.worker.extraEnv -}}
{{- $problems = append $problems "worker.extraEnv is set, but with database.type sqlite the worker has the environment of the API: use api.extraEnv" -}}
{{- end -}}
{{- if and (dig "limits" "memory" "" .Values.api.resources) (not (dig "limits" "memory" "" .Values.worker.resources)) -}}
{{- $problems = append $problems "worker.resources.limits.memory is empty, but with database.type sqlite the worker runs within api.resources.limits.memory: set both or none" -}}
{{- end -}}
{{- range $path, $name := dict "database.postgresql.urlSecret.name" $database.postgresql.urlSecret.name "migrations.urlSecret.name" .Values.migrations.urlSecret.name -}}
{{- if $name -}}
{{- $problems = append $problems (printf "%s is %q, but database.type is sqlite: use postgresql, or leave the name empty" $path $name) -}}
{{- end -}}
{{- end -}}
{{- else if not $database.postgresql.urlSecret.name -}}
{{- $problems = append $problems "database.postgresql.urlSecret.name is empty: set the name of the Secret with the database URL" -}}
{{- end -}}
{{- with .Values.api.autoscaling -}}
{{- if and .enabled (gt (int .minReplicas) (int .maxReplicas)) -}}
{{- $problems = append $problems (printf "api.autoscaling.minReplicas is %d: allowed are 1 to maxReplicas, %d" (int .minReplicas) (int .maxReplicas)) -}}
{{- end -}}
{{- end -}}
{{- if ge (int .Values.api.preStopSleepSeconds) (int .Values.api.terminationGracePeriodSeconds) -}}
{{- $problems = append $problems (printf "api.preStopSleepSeconds is %d: allowed is less than terminationGracePeriodSeconds, %d" (int .Values.api.preStopSleepSeconds) (int .Values.api.terminationGracePeriodSeconds)) -}}
{{- end -}}
{{- with .Values.worker -}}
{{- $limit := dig "limits" "memory" "" .resources -}}
{{- $needed := include "fleetwright.workerMiB" $ | int -}}
{{- if and .enabled $limit (lt (include "fleetwright.quantity" (dict "quantity" $limit "unit" 1048576) | float64) (float64 $needed)) -}}
{{- $problems = append $problems (printf "worker.resources.limits.memory is %v, but worker.concurrency %d and worker.jobMemoryMiB %d need %dMi: (concurrency + 2) x jobMemoryMiB + 300" $limit (int .concurrency) (int .jobMemoryMiB) $needed) -}}
{{- end -}}
{{- end -}}
{{- with .Values.api.ingress -}}
{{- if and .enabled (not .host) -}}
{{- $problems = append $problems "api.ingress.enabled is true, but api.ingress.host is empty" -}}
{{- end -}}
{{- end -}}
{{- if and .Values.api.httpRoute.enabled (not .Values.api.httpRoute.parentRefs) -}}
{{- $problems = append $problems "api.httpRoute.enabled is true, but api.httpRoute.parentRefs is empty" -}}
{{- end -}}
{{- else -}}
{{- $callers := list -}}
{{- $tokenless := list -}}
{{- range $components -}}
{{- if .callsApi -}}
{{- $path := include "fleetwright.valuesPath" . -}}
{{- $callers = append $callers $path -}}
{{- if not (default .values.apiToken .values.token).existingSecret -}}{{- $tokenless = append $tokenless $path -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- if and $callers (not .Values.externalApi.url) -}}
{{- $problems = append $problems (printf "api.enabled is false, but externalApi.url is empty: %s needs an API" (join ", " $callers)) -}}
{{- end -}}
{{- if and $tokenless (not .Values.externalApi.tokenSecret.name) -}}
{{- $problems = append $problems (printf "api.enabled is false, but externalApi.tokenSecret.name is empty: %s needs a token" (join ", " $tokenless)) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.certManager.enabled (not .Values.certManager.issuerRef.name) -}}
{{- $problems = append $problems "certManager.enabled is true, but certManager.issuerRef.name is empty" -}}
{{- end -}}
{{- $own := list "FLEETWRIGHT_BOOTSTRAP_TOKEN_FILE" "FLEETWRIGHT_DATABASE_URL" "FLEETWRIGHT_HOST" "FLEETWRIGHT_JOB_DEADLINE_S" "FLEETWRIGHT_JOB_MEMORY_MIB" "FLEETWRIGHT_LOG_LEVEL" "FLEETWRIGHT_PLAN_CONCURRENCY" "FLEETWRIGHT_PORT" -}}
{{- $accounts := dict -}}
{{- range $item := $components -}}
{{- $path := include "fleetwright.valuesPath" . -}}
{{- range .values.extraEnv -}}
{{- if has .name $own -}}
{{- $problems = append $problems (printf "%s.extraEnv sets %s, which the chart sets itself from its values" $path .name) -}}
{{- end -}}
{{- end -}}
{{- range $resource, $request := default dict .values.resources.requests -}}
{{- $limit := dig "limits" $resource "" $item.values.resources -}}
{{- if and $limit (gt (include "fleetwright.quantity" (dict "quantity" $request "unit" 1) | float64) (include "fleetwright.quantity" (dict "quantity" $limit "unit" 1) | float64)) -}}
{{- $problems = append $problems (printf "%s.resources.requests.%s is %v: allowed is at most its limit, %v" $path $resource $request $limit) -}}
{{- end -}}
{{- end -}}
{{- if or .callsKubernetes (and (eq .component "agent") .values.act) -}}
{{- $account := include "fleetwright.serviceAccountName" (merge (dict "root" $) .) -}}
{{- if eq $account "default" -}}
{{- $problems = append $problems (printf "%s has permissions, but %s.serviceAccount.name is empty and the chart creates none: every pod of the namespace would have its permissions" $path $path) -}}
{{- end -}}
{{- end -}}
{{- $account := include "fleetwright.serviceAccountName" (merge (dict "root" $) .) -}}
{{- $sharers := append (default list (get $accounts $account)) . -}}
{{- $_ := set $accounts $account $sharers -}}
{{- end -}}
{{- range $account, $sharers := $accounts -}}
{{- $paths := list -}}
{{- $mayCall := false -}}
{{- range $sharers -}}
{{- $paths = append $paths (include "fleetwright.valuesPath" .) -}}
{{- $mayCall = or $mayCall .callsKubernetes -}}
{{- end -}}
{{- if and $mayCall (gt (len (uniq $paths)) 1) -}}
{{- $problems = append $problems (printf "serviceAccount.name %q is that of %s: one of them has permissions, so each needs its own" $account (join ", " $paths)) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.controller.enabled .Values.controller.stock.enabled (not .Values.controller.kubernetes.enabled) -}}
{{- $problems = append $problems "controller.stock.enabled is true, but controller.kubernetes.enabled is false" -}}
{{- end -}}
{{- range $components -}}
{{- $path := include "fleetwright.valuesPath" . -}}
{{- $values := .values -}}
{{- if eq .component "guard" -}}
{{- if not (hasKey $values.config "settings") -}}
{{- $problems = append $problems (printf "%s.config has no settings" $path) -}}
{{- end -}}
{{- $names := list -}}
{{- range $values.config.agents -}}
{{- if has .name $names -}}
{{- $problems = append $problems (printf "%s.config.agents: %q is there twice" $path .name) -}}
{{- end -}}
{{- $names = append $names .name -}}
{{- end -}}
{{- if and (not $names) (not $values.agents.service) (not $.Values.agent.enabled) -}}
{{- $problems = append $problems (printf "%s has no agents: set agent.enabled, agents.service or config.agents" $path) -}}
{{- end -}}
{{- if and $.Values.agent.enabled $.Values.agent.token.existingSecret (not $values.agentToken.existingSecret) -}}
{{- $problems = append $problems (printf "agent.token.existingSecret is set, but %s.agentToken.existingSecret is empty: the agents would reject the guard" $path) -}}
{{- end -}}
{{- if and $.Values.agent.enabled $.Values.agent.tls.existingSecret (not $values.agentTls.existingSecret) -}}
{{- $problems = append $problems (printf "agent.tls.existingSecret is set, but %s.agentTls.existingSecret is empty: the agents would reject the guard" $path) -}}
{{- end -}}
{{- else if eq .component "agent" -}}
{{- if and (not $values.token.existingSecret) (not (include "fleetwright.tlsSecret" (merge (dict "root" $) .))) -}}
{{- $problems = append $problems "agent.enabled is true, but agent.token.existingSecret and agent.tls.existingSecret are empty: every client that reaches the port could lower the nodes' clocks" -}}
{{- end -}}
{{- if and $values.act (lt (int $values.terminationGracePeriodSeconds) 30) -}}
{{- $problems = append $problems (printf "agent.terminationGracePeriodSeconds is %d: allowed with agent.act are 30 to 3600, because the agent must restore caps" (int $values.terminationGracePeriodSeconds)) -}}
{{- end -}}
{{- else if eq .component "fault-monitor" -}}
{{- if not (hasKey $values.job "nodes") -}}
{{- $problems = append $problems (printf "%s.job has no nodes" $path) -}}
{{- end -}}
{{- if and $values.apiToken.existingSecret (not $values.names) -}}
{{- $problems = append $problems (printf "%s.apiToken.existingSecret is set, but %s.names is empty: reports need the fleet's node names" $path $path) -}}
{{- end -}}
{{- $patterns := contains "[" (join "" $values.names) -}}
{{- if and $values.names (not $patterns) (hasKey $values.job "nodes") (ne (len $values.names) (int $values.job.nodes)) -}}
{{- $problems = append $problems (printf "%s.names has %d names: expected one for each node of the job, %d" $path (len $values.names) (int $values.job.nodes)) -}}
{{- end -}}
{{- if not $values.recorderToken.existingSecret -}}
{{- $problems = append $problems (printf "%s.recorderToken.existingSecret is empty: the fault monitor accepts no recorder without a token" $path) -}}
{{- end -}}
{{- else if eq .component "remediation" -}}
{{- if and (not $values.kubernetes.enabled) (not $values.rayAddress) -}}
{{- $problems = append $problems (printf "%s.rayAddress is empty: set HOST:PORT of the Ray cluster's head, or kubernetes.enabled" $path) -}}
{{- end -}}
{{- if and (not $values.kubernetes.enabled) $.Values.networkPolicy.enabled (not $values.rayPeers) -}}
{{- $problems = append $problems (printf "%s.rayPeers is empty: set the pods of its Ray cluster" $path) -}}
{{- end -}}
{{- else if eq .component "router" -}}
{{- if not $values.config.engines -}}
{{- $problems = append $problems "router.enabled is true, but router.config has no engines" -}}
{{- end -}}
{{- if not $values.table.configMap -}}
{{- $problems = append $problems "router.enabled is true, but router.table.configMap is empty: set the ConfigMap with the routing table" -}}
{{- end -}}
{{- else if eq .component "health-events" -}}
{{- if and $values.webhook.url (not $values.webhook.existingSecret) -}}
{{- $problems = append $problems "healthEvents.webhook.url is set, but healthEvents.webhook.existingSecret is empty: events are signed" -}}
{{- end -}}
{{- if and $values.act $values.nvsentinelSocket (not $values.kubernetes.enabled) -}}
{{- $problems = append $problems "healthEvents.nvsentinelSocket with healthEvents.act needs healthEvents.kubernetes.enabled, to leave nodes of other owners alone" -}}
{{- end -}}
{{- if not (or $values.webhook.url $values.nvsentinelSocket) -}}
{{- $problems = append $problems "healthEvents.enabled is true, but healthEvents.webhook.url and healthEvents.nvsentinelSocket are empty" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if $problems -}}
{{- printf "\n\nThese values are inconsistent:\n  - %s\n" (join "\n  - " $problems) | fail -}}
{{- end -}}
{{- end -}}

{{/* The path of a component's values, for messages. */}}
{{- define "fleetwright.valuesPath" -}}
{{- $maps := dict "guard" "powerGuards" "fault-monitor" "faultMonitors" "remediation" "remediators" "agent" "agent.rows" -}}
{{- if and .entry (ne .component "agent") -}}
{{- get $maps .component }}.{{ .entry -}}
{{- else -}}
{{- .component | camelcase | untitle -}}
{{- end -}}
{{- end -}}
