//go:build tools

// Package tools pins the etcd command of a local cluster.
package tools

import _ "go.etcd.io/etcd/server/v3"
