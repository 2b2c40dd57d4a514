module github.com/rackbus/rackbus/services/standalone

go 1.26

replace github.com/rackbus/rackbus/proto => ../../proto

require (
	github.com/rackbus/rackbus/pkg v0.0.0
	github.com/rackbus/rackbus/proto v0.0.0
	github.com/rackbus/rackbus/services/api v0.0.0
	github.com/rackbus/rackbus/services/jobs v0.0.0
)

replace github.com/rackbus/rackbus/pkg => ../../pkg

replace github.com/rackbus/rackbus/services/api => ../api

replace github.com/rackbus/rackbus/services/jobs => ../jobs
