module github.com/rackbus/rackbus/sim

go 1.26.0

replace github.com/rackbus/rackbus/proto => ../proto

require (
	github.com/openconfig/gnmi v0.14.1
	github.com/pkg/sftp v1.13.12
	github.com/rackbus/rackbus/proto v0.0.0
	github.com/stretchr/testify v1.12.1
	go.uber.org/goleak v1.3.0
	golang.org/x/crypto v0.58.0
	google.golang.org/grpc v1.85.0
)

require (
	github.com/kr/fs v0.1.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/net v0.60.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.43.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260817212433-ac3dfec99bb1 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)
