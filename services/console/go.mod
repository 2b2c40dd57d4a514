module github.com/rackbus/rackbus/services/console

go 1.26.0

replace (
	github.com/rackbus/rackbus/pkg => ../../pkg
	github.com/rackbus/rackbus/proto => ../../proto
)

require (
	github.com/rackbus/rackbus/pkg v0.0.0
	github.com/rackbus/rackbus/proto v0.0.0
	github.com/stretchr/testify v1.12.1
	go.uber.org/goleak v1.3.0
	google.golang.org/grpc v1.85.0
	google.golang.org/protobuf v1.36.12
)

require (
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/net v0.60.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.43.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260817212433-ac3dfec99bb1 // indirect
)
