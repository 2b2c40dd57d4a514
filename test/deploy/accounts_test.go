// SPDX-License-Identifier: Apache-2.0

package deploy_test

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/conf"
	"github.com/stretchr/testify/require"
)

// update writes the accounts that are made from others.
var update = flag.Bool("update", false, "write accounts-single.conf and accounts-leaf.conf")

const (
	shipped = "../../deploy/nats"
	// marker ends the lines that only three servers need.
	marker = "  # three servers"
	// agentsFrom and agentsTo enclose the users of agents.
	agentsFrom = "      # --- agents\n"
	agentsTo   = "      # --- end of agents\n"
)

func readAccounts(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(shipped, name))
	require.NoError(t, err)
	return string(text)
}

// single leaves out what agents need on three servers only.
func single(accounts string) string {
	var out strings.Builder
	out.WriteString("# For one server. Made from accounts.conf, see there.\n")
	_, body, _ := strings.Cut(accounts, "\naccounts {")
	for line := range strings.Lines("\naccounts {" + body) {
		if !strings.HasSuffix(line, marker+"\n") {
			out.WriteString(line)
		}
	}
	return out.String()
}

// toHub is how a leaf site names a subject that JetStream at the hub serves.
func toHub(subject string) string {
	switch {
	case strings.HasPrefix(subject, "$JS.API."):
		return "$JS.hub.API." + strings.TrimPrefix(subject, "$JS.API.")
	case strings.HasPrefix(subject, "$KV."):
		return "$JS.hub.API." + subject
	}
	return subject
}

var quoted = regexp.MustCompile(`"[^"]+"`)

// leaf is the accounts of a site with agents only.
func leaf(t *testing.T, accounts string) string {
	t.Helper()
	_, agents, found := strings.Cut(accounts, agentsFrom)
	require.True(t, found)
	agents, _, found = strings.Cut(agents, agentsTo)
	require.True(t, found)
	agents = quoted.ReplaceAllStringFunc(agents, func(s string) string {
		return `"` + toHub(strings.Trim(s, `"`)) + `"`
	})
	agents = strings.ReplaceAll(agents, marker+"\n", "\n")
	return `# For a leaf site. Made from accounts.conf, see there.

accounts {
  RACKBUS {
    # JetStream is at the hub. Rights are checked after this.
    mappings: { "$JS.API.>": "$JS.hub.API.>", "$KV.>": "$JS.hub.API.$KV.>" }
    users: [
` + agents + `    ]
  }
  SYS {
    users: [ { nkey: $NKEY_SYS } ]
  }
}
system_account: SYS
`
}

// TestDerivedAccounts: there is one source of rights.
func TestDerivedAccounts(t *testing.T) {
	source := readAccounts(t, "accounts.conf")
	for name, want := range map[string]string{"accounts-single.conf": single(source), "accounts-leaf.conf": leaf(t, source)} {
		if *update {
			require.NoError(t, os.WriteFile(filepath.Join(shipped, name), []byte(want), 0o644))
		}
		require.Equal(t, want, readAccounts(t, name), "go test ./test/deploy -run TestDerivedAccounts -update")
	}
}

// rights of one user.
type rights struct{ publish, subscribe []string }

// users reads the accounts file with the names of the variables as NKEYs.
func users(t *testing.T, text, account string) map[string]rights {
	t.Helper()
	tree, err := conf.Parse(regexp.MustCompile(`\$(NKEY_\w+)`).ReplaceAllString(text, "$1"))
	require.NoError(t, err)
	out := map[string]rights{}
	for _, u := range tree["accounts"].(map[string]any)[account].(map[string]any)["users"].([]any) {
		user := u.(map[string]any)
		p, limited := user["permissions"].(map[string]any)
		if !limited {
			out[user["nkey"].(string)] = rights{publish: []string{">"}, subscribe: []string{">"}}
			continue
		}
		out[user["nkey"].(string)] = rights{publish: allowed(p, "publish"), subscribe: allowed(p, "subscribe")}
	}
	return out
}

func allowed(permissions map[string]any, what string) []string {
	var out []string
	for _, s := range permissions[what].(map[string]any)["allow"].([]any) {
		out = append(out, s.(string))
	}
	return out
}

// TestLeafMayWhatItsAgentsMay: the user of a leaf site has the rights of all
// agents together and no other, but for answers.
func TestLeafMayWhatItsAgentsMay(t *testing.T) {
	for _, name := range []string{"accounts.conf", "accounts-single.conf"} {
		all := users(t, readAccounts(t, name), "RACKBUS")
		publish, subscribe := []string{"_INBOX_api.>", "_INBOX_jobs.>"}, []string(nil)
		for _, family := range []string{"COMPUTE", "POWERSHELF", "SWITCH"} {
			agent, known := all["NKEY_AGENT_"+family]
			require.True(t, known, family)
			for _, s := range agent.publish {
				if !strings.HasPrefix(s, "$JS.ACK.") { // servers pass these on unasked
					publish = append(publish, toHub(s))
				}
			}
			subscribe = append(subscribe, agent.subscribe...)
		}
		require.ElementsMatch(t, distinct(publish), all["NKEY_LEAF"].publish, name)
		require.ElementsMatch(t, distinct(subscribe), all["NKEY_LEAF"].subscribe, name)
	}
}

func distinct(s []string) []string {
	slices.Sort(s)
	return slices.Compact(s)
}

// TestAgentsHaveTheSameRights: but for the name of the family.
func TestAgentsHaveTheSameRights(t *testing.T) {
	all := users(t, readAccounts(t, "accounts.conf"), "RACKBUS")
	for _, family := range []string{"powershelf", "switch"} {
		rename := func(s []string) []string {
			out := slices.Clone(s)
			for i := range out {
				out[i] = strings.NewReplacer("."+family+".", ".compute.", "agent-"+family, "agent-compute").Replace(out[i])
			}
			return out
		}
		agent := all["NKEY_AGENT_"+strings.ToUpper(family)]
		require.ElementsMatch(t, all["NKEY_AGENT_COMPUTE"].publish, rename(agent.publish))
		require.ElementsMatch(t, all["NKEY_AGENT_COMPUTE"].subscribe, rename(agent.subscribe))
	}
}
