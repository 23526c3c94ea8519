{{/* Rules between values, which values.schema.json cannot express.  One error lists all violations. */}}
{{- define "fleetwright.checks" -}}
{{- $problems := list -}}
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
{{- $own := list "FLEETWRIGHT_BOOTSTRAP_TOKEN_FILE" "FLEETWRIGHT_DATABASE_URL" "FLEETWRIGHT_HOST" "FLEETWRIGHT_JOB_DEADLINE_S" "FLEETWRIGHT_JOB_MEMORY_MIB" "FLEETWRIGHT_LOG_LEVEL" "FLEETWRIGHT_PLAN_CONCURRENCY" "FLEETWRIGHT_PORT" -}}
{{- range $component := list "api" "worker" "controller" "guard" "agent" "faultMonitor" "remediation" -}}
{{- range (index $.Values $component).extraEnv -}}
{{- if has .name $own -}}
{{- $problems = append $problems (printf "%s.extraEnv sets %s, which the chart sets itself from its values" $component .name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- with .Values.controller -}}
{{- if and .enabled .kubernetes.enabled (not .serviceAccount.create) (not .serviceAccount.name) -}}
{{- $problems = append $problems "controller.kubernetes.enabled is true, but controller.serviceAccount.name is empty and the chart creates none: every pod of the namespace would have the controller's permissions" -}}
{{- end -}}
{{- end -}}
{{- with .Values.guard -}}
{{- range $field := ternary (list "row" "settings" "agents") list .enabled -}}
{{- if not (hasKey $.Values.guard.config $field) -}}
{{- $problems = append $problems (printf "guard.enabled is true, but guard.config has no %s" $field) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- with .Values.agent -}}
{{- if and .enabled (not .token.existingSecret) (not .tls.existingSecret) -}}
{{- $problems = append $problems "agent.enabled is true, but agent.token.existingSecret and agent.tls.existingSecret are empty: every client that reaches the port could lower the nodes' clocks" -}}
{{- end -}}
{{- if and .enabled .act (lt (int .terminationGracePeriodSeconds) 30) -}}
{{- $problems = append $problems (printf "agent.terminationGracePeriodSeconds is %d: allowed with agent.act are 30 to 3600, because the agent must restore caps" (int .terminationGracePeriodSeconds)) -}}
{{- end -}}
{{- if and .enabled .token.existingSecret $.Values.guard.enabled (not $.Values.guard.agentToken.existingSecret) -}}
{{- $problems = append $problems "agent.token.existingSecret is set, but guard.agentToken.existingSecret is empty: the agents would reject the guard" -}}
{{- end -}}
{{- if and .enabled .tls.existingSecret $.Values.guard.enabled (not $.Values.guard.agentTls.existingSecret) -}}
{{- $problems = append $problems "agent.tls.existingSecret is set, but guard.agentTls.existingSecret is empty: the agents would reject the guard" -}}
{{- end -}}
{{- end -}}
{{- with .Values.faultMonitor -}}
{{- if and .enabled (not (hasKey .job "nodes")) -}}
{{- $problems = append $problems "faultMonitor.enabled is true, but faultMonitor.job has no nodes" -}}
{{- end -}}
{{- if and .enabled .apiToken.existingSecret (not .names) -}}
{{- $problems = append $problems "faultMonitor.apiToken.existingSecret is set, but faultMonitor.names is empty: reports need the fleet's node names" -}}
{{- end -}}
{{- end -}}
{{- with .Values.remediation -}}
{{- if and .enabled (not .rayAddress) -}}
{{- $problems = append $problems "remediation.enabled is true, but remediation.rayAddress is empty: set HOST:PORT of the Ray cluster's head" -}}
{{- end -}}
{{- if and .enabled $.Values.networkPolicy.enabled (not $.Values.networkPolicy.remediationPeers) -}}
{{- $problems = append $problems "remediation.enabled is true, but networkPolicy.remediationPeers is empty: set the pods of its Ray cluster" -}}
{{- end -}}
{{- end -}}
{{- if $problems -}}
{{- printf "\n\nThese values are inconsistent:\n  - %s\n" (join "\n  - " $problems) | fail -}}
{{- end -}}
{{- end -}}
