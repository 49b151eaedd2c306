#!/bin/sh
# Whether the other node could take over now. Run it as root on either node, each day and before a drill: a line for each
# check, and the exit code 1 when one fails.
resource=${1:-slipway}
failures=0

# check TEXT COMMAND...: the command's success is the result.
check() {
  text=$1
  shift
  if "$@" >/dev/null 2>&1; then
    echo "ok    $text"
  else
    echo "FAIL  $text"
    failures=$((failures + 1))
  fi
}

# says PATTERN COMMAND...: whether the output of the command has a line that matches.
says() {
  pattern=$1
  shift
  "$@" 2>/dev/null | grep -Eq "$pattern"
}

check 'the nodes replicate to each other' says '^Connected$' drbdadm cstate "$resource"
check 'the data is current on this node and on the other one' says '^UpToDate/UpToDate$' drbdadm dstate "$resource"
check 'a write returns when both nodes have it (protocol C)' says 'protocol[[:space:]]+C;' drbdadm dump "$resource"
check 'DRBD waits for fencing' says 'fencing[[:space:]]+resource-and-stonith;' drbdadm dump "$resource"
check 'fencing is on' says '^true$' crm_attribute --type crm_config --name stonith-enabled --query --quiet
check 'the cluster has two nodes' says "2 nodes configured" crm_mon -1
check 'no node is offline, in standby or in maintenance' sh -c '! crm_mon -1 | grep -Eiq "offline|standby|maintenance|unclean"'
check 'no action has failed' sh -c '! crm_mon -1 | grep -q "Failed .* Actions"'
check 'no node is banned from the data after a loss' sh -c '! crm_mon -1 --neg-locations 2>/dev/null | grep -q drbd-fence-by-handler'
check 'the server runs' says 'slipway-server.*Started' crm_mon -1

[ "$failures" = 0 ] || exit 1
