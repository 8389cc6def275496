{{- define "pod2role.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "pod2role.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains (include "pod2role.name" .) .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "pod2role.name" .) | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* The selector can never be changed, so that only these two labels are in it. */}}
{{- define "pod2role.selector" -}}
app.kubernetes.io/name: {{ include "pod2role.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "pod2role.labels" -}}
{{ include "pod2role.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "pod2role.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "pod2role.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- required "serviceAccount.name is needed where serviceAccount.create is false" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "pod2role.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{/* One value as text. YAML numbers come as floats, which Go would print as 1e+06. */}}
{{- define "pod2role.text" -}}
{{- if and (kindIs "float64" .) (eq (floor .) .) -}}
{{- int64 . -}}
{{- else -}}
{{- toString . -}}
{{- end -}}
{{- end -}}

{{/* Always --option=value, never a bare --option: "--option" alone would turn on what its value false turns off. */}}
{{- define "pod2role.args" -}}
- run
- --node=$(NODE_NAME)
{{- range $option, $value := .Values.options }}
{{- if kindIs "slice" $value }}
{{- range $value }}
- {{ printf "--%s=%s" $option (include "pod2role.text" .) | quote }}
{{- else }}
- {{ printf "--%s=" $option | quote }}
{{- end }}
{{- else if not (kindIs "invalid" $value) }}
- {{ printf "--%s=%s" $option (include "pod2role.text" $value) | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "pod2role.probe" -}}
exec:
  command: [/pod2role, probe, {{ .what }}, "--addr=127.0.0.1:{{ include "pod2role.text" (get .options "metrics-port" | default 8182) }}"]
{{- end -}}
