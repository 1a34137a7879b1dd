//go:build tools

// Package tools pins the kwok command of a local cluster.
package tools

import _ "sigs.k8s.io/kwok/cmd/kwok"
