{{/* Parts of the workers, and of the API, which runs one itself with SQLite. */}}

{{/* Settings of jobs: the API needs the deadline, workers need all. */}}
{{- define "fleetwright.jobSettings" -}}
- name: FLEETWRIGHT_PLAN_CONCURRENCY
  value: {{ int .Values.worker.concurrency | quote }}
- name: FLEETWRIGHT_JOB_MEMORY_MIB
  value: {{ int .Values.worker.jobMemoryMiB | quote }}
- name: FLEETWRIGHT_JOB_DEADLINE_S
  value: {{ .Values.worker.jobDeadlineSeconds | quote }}
{{- end -}}

{{/* Memory that a worker may need, in MiB: its concurrent jobs, one of lane safety, one of lane reads, and itself. */}}
{{- define "fleetwright.workerMiB" -}}
{{- add (mul (add (int .Values.worker.concurrency) 2) (int .Values.worker.jobMemoryMiB)) 300 -}}
{{- end -}}

{{/* A Kubernetes quantity as a number, in the unit given as a power: (dict "quantity" "1Gi" "unit" 1048576). */}}
{{- define "fleetwright.quantity" -}}
{{- $text := toString .quantity -}}
{{- $number := regexFind "^[0-9.]+(e[+][0-9]+)?" $text -}}
{{- $factors := dict "m" 0.001 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "Pi" 1125899906842624 -}}
{{- $factor := default 1 (get $factors (trimPrefix $number $text)) -}}
{{- divf (mulf (float64 $number) $factor) .unit -}}
{{- end -}}

{{/* Resources of the API's container.  With SQLite: CPU and memory of the API and of its worker, added. */}}
{{- define "fleetwright.apiResources" -}}
{{- $resources := deepCopy .Values.api.resources -}}
{{- if eq .Values.database.type "sqlite" -}}
{{- range $section := list "requests" "limits" -}}
{{- range $name, $of := dict "cpu" (list 0.001 "m") "memory" (list 1048576 "Mi") -}}
{{- $api := dig $section $name "" $resources -}}
{{- $worker := dig $section $name "" $.Values.worker.resources -}}
{{- if and $api $worker -}}
{{- $sum := addf (include "fleetwright.quantity" (dict "quantity" $api "unit" (first $of)) | float64) (include "fleetwright.quantity" (dict "quantity" $worker "unit" (first $of)) | float64) -}}
{{- $_ := set (index $resources $section) $name (printf "%.0f%s" (ceil $sum) (last $of)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toYaml $resources -}}
{{- end -}}
