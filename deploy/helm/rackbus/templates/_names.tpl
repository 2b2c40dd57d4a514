{{/* Names and labels. */}}

{{- define "rackbus.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "rackbus.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "rackbus.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "rackbus.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "rackbus.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "rackbus.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* What tells the pods of this release from all others. */}}
{{- define "rackbus.instance" -}}
app.kubernetes.io/name: {{ include "rackbus.name" . }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "rackbus.labels" -}}
{{ include "rackbus.instance" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* The processes: the name of the program, the key of its values, and the family whose secrets it opens. */}}
{{- define "rackbus.processes" -}}
- {name: api, key: api}
- {name: jobs, key: jobs, opens: rack}
- {name: compute-agent, key: computeAgent, opens: compute}
- {name: switch-agent, key: switchAgent, opens: switch}
- {name: powershelf-agent, key: powershelfAgent, opens: powershelf}
{{- end -}}

{{- define "rackbus.image" -}}
{{- printf "%s/%s:%s" .root.Values.image.repository .name (default .root.Chart.AppVersion .root.Values.image.tag) -}}
{{- end -}}
