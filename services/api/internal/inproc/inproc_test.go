// SPDX-License-Identifier: Apache-2.0

package inproc

import (
	"context"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type key struct{}

// jobs is a service by script.
type jobs struct {
	rackbusv1.UnimplementedJobsServer
	got  *rackbusv1.GetJobRequest
	sent *rackbusv1.Job
}

func (j *jobs) GetJob(ctx context.Context, req *rackbusv1.GetJobRequest) (*rackbusv1.GetJobResponse, error) {
	if err := grpc.SetTrailer(ctx, metadata.Pairs("a", "b")); err != nil {
		return nil, err
	}
	md, _ := metadata.FromIncomingContext(ctx)
	j.got = req
	switch req.GetJobId() {
	case "missing":
		return nil, status.Error(codes.NotFound, "no such job")
	case "slow":
		<-ctx.Done()
		return nil, ctx.Err()
	}
	who, _ := ctx.Value(key{}).(string)
	j.sent = &rackbusv1.Job{JobId: req.GetJobId(), Name: who, Agent: md.Get("mark")[0]}
	return &rackbusv1.GetJobResponse{Job: j.sent}, nil
}

func (j *jobs) WatchJobs(req *rackbusv1.WatchJobsRequest, stream grpc.ServerStreamingServer[rackbusv1.WatchJobsResponse]) error {
	for range 3 {
		if err := stream.Send(&rackbusv1.WatchJobsResponse{ResumeToken: req.GetResumeToken()}); err != nil {
			return err
		}
	}
	switch req.GetResumeToken() {
	case "fail":
		return status.Error(codes.Unavailable, "going down")
	case "stay":
		<-stream.Context().Done()
		return stream.Context().Err()
	}
	return nil
}

func newConn(t *testing.T) (*Conn, *jobs, *[]string) {
	t.Helper()
	var passed []string
	unary := func(name string) grpc.UnaryServerInterceptor {
		return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			passed = append(passed, name+" "+info.FullMethod)
			return next(ctx, req)
		}
	}
	stream := func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		if who, _ := ss.Context().Value(key{}).(string); who == "nobody" {
			return status.Error(codes.PermissionDenied, info.FullMethod)
		}
		return next(srv, ss)
	}
	c := New([]grpc.UnaryServerInterceptor{unary("outer"), unary("inner")}, []grpc.StreamServerInterceptor{stream, stream})
	j := &jobs{}
	rackbusv1.RegisterJobsServer(c, j)
	t.Cleanup(c.Wait)
	return c, j, &passed
}

func TestCalls(t *testing.T) {
	c, j, passed := newConn(t)
	client := rackbusv1.NewJobsClient(c)
	ctx := metadata.AppendToOutgoingContext(context.WithValue(t.Context(), key{}, "ann"), "mark", "x")
	req := &rackbusv1.GetJobRequest{JobId: "j1"}
	resp, err := client.GetJob(ctx, req)
	require.NoError(t, err)
	require.Equal(t, "ann", resp.GetJob().GetName(), "the values of the context arrive")
	require.Equal(t, "x", resp.GetJob().GetAgent(), "the metadata arrive")
	require.Equal(t, []string{"outer /rackbus.v1.Jobs/GetJob", "inner /rackbus.v1.Jobs/GetJob"}, *passed)
	require.NotSame(t, req, j.got, "the request is a copy")
	require.NotSame(t, j.sent, resp.GetJob(), "the answer is a copy")

	_, err = client.GetJob(ctx, &rackbusv1.GetJobRequest{JobId: "missing"})
	require.Equal(t, codes.NotFound, status.Code(err))
	_, err = client.CancelJob(ctx, &rackbusv1.CancelJobRequest{})
	require.Equal(t, codes.Unimplemented, status.Code(err))
	_, err = rackbusv1.NewAccessClient(c).WhoAmI(ctx, &rackbusv1.WhoAmIRequest{})
	require.Equal(t, codes.Unimplemented, status.Code(err), "a service that is not there")

	ended, cancel := context.WithCancel(ctx)
	cancel()
	_, err = client.GetJob(ended, &rackbusv1.GetJobRequest{JobId: "slow"})
	require.Equal(t, codes.Canceled, status.Code(err))
}

func TestStreams(t *testing.T) {
	c, _, _ := newConn(t)
	client := rackbusv1.NewJobsClient(c)
	read := func(ctx context.Context, token string) (n int, err error) {
		stream, err := client.WatchJobs(ctx, &rackbusv1.WatchJobsRequest{ResumeToken: token})
		require.NoError(t, err)
		for {
			m, err := stream.Recv()
			if err != nil {
				return n, err
			}
			require.Equal(t, token, m.GetResumeToken())
			n++
		}
	}
	n, err := read(t.Context(), "end")
	require.ErrorIs(t, err, io.EOF)
	require.Equal(t, 3, n)
	n, err = read(t.Context(), "fail")
	require.Equal(t, codes.Unavailable, status.Code(err))
	require.Equal(t, 3, n)
	n, err = read(context.WithValue(t.Context(), key{}, "nobody"), "end")
	require.Equal(t, codes.PermissionDenied, status.Code(err))
	require.Zero(t, n)

	// A caller that goes leaves nothing behind.
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := client.WatchJobs(ctx, &rackbusv1.WatchJobsRequest{ResumeToken: "stay"})
	require.NoError(t, err)
	_, err = stream.Recv()
	require.NoError(t, err)
	cancel()
	for err == nil {
		_, err = stream.Recv()
	}
	require.Equal(t, codes.Canceled, status.Code(err))
	require.NotErrorIs(t, err, io.EOF)
	c.Wait()
}
