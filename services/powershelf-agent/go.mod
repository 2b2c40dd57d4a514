module github.com/rackbus/rackbus/services/powershelf-agent

go 1.26
