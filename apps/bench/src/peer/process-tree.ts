/** CPU time of this process's descendants, which run for a measurement. */
import { readdirSync, readFileSync } from 'node:fs';

/** Milliseconds per clock tick of `/proc`, the same on every Linux that Node runs on. */
const tickMs = 10;

/** Milliseconds so far, including those of reaped processes; 0 where there is no `/proc`. */
export function descendantsCpuMs(root: number = process.pid): number {
  const stats = new Map<number, { readonly parent: number; readonly cpuMs: number }>();
  try {
    for (const entry of readdirSync('/proc')) {
      if (!/^\d+$/.test(entry)) continue;
      const stat = readStat(entry);
      if (stat !== undefined) stats.set(Number(entry), stat);
    }
  } catch {
    return 0; // not Linux
  }
  let total = 0;
  for (const [pid, { cpuMs }] of stats) {
    let ancestor = pid;
    while (ancestor !== root && ancestor > 1) ancestor = stats.get(ancestor)?.parent ?? 0;
    if (ancestor === root && pid !== root) total += cpuMs;
  }
  return total;
}

/** Milliseconds of CPU time of this process's children that have ended; 0 where there is no `/proc`. */
export function endedChildrenCpuMs(): number {
  return readStat('self')?.endedMs ?? 0;
}

function readStat(pid: string): { parent: number; cpuMs: number; endedMs: number } | undefined {
  try {
    // the name, in parentheses, may contain anything
    const [, fields = ''] = /\) (.*)$/s.exec(readFileSync(`/proc/${pid}/stat`, 'utf8')) ?? [];
    const numbers = fields.split(' ').map(Number);
    const [user = 0, system = 0, userOfEnded = 0, systemOfEnded = 0] = numbers.slice(11, 15);
    const endedMs = (userOfEnded + systemOfEnded) * tickMs;
    return { parent: numbers[1] ?? 0, cpuMs: (user + system) * tickMs + endedMs, endedMs };
  } catch {
    return undefined; // it has exited in the meantime
  }
}
