module github.com/rackbus/rackbus/deploy

go 1.26.0
