//go:build tools

// Package tools pins the helm command of a local cluster.
package tools

import _ "helm.sh/helm/v3/cmd/helm"
