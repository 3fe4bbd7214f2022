/** HAProxy for a test: a process in a temporary folder. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { accepts, findProgram, freePort } from './programs.js';

/** Path of `haproxy`, which Debian has outside of the PATH of users; undefined where it is missing. */
export const haproxyProgram: string | undefined = findProgram('haproxy', ['/usr/sbin', '/usr/local/sbin']);

export interface Haproxy {
  readonly url: string;
  /** Ends it and removes its folder. */
  stop(): Promise<void>;
}

/** @param configure the text of the configuration for a port of the loopback interface and a folder for sockets */
export async function startHaproxy(configure: (port: number, folder: string) => string): Promise<Haproxy> {
  if (haproxyProgram === undefined) throw new Error('haproxy is missing');
  const folder = mkdtempSync(join(tmpdir(), 'winnow-haproxy-'));
  const port = await freePort();
  const file = join(folder, 'haproxy.cfg');
  writeFileSync(file, configure(port, folder));
  const child = spawn(haproxyProgram, ['-db', '-f', file], { stdio: 'ignore' });
  const stop = async (): Promise<void> => {
    if (child.exitCode === null && child.signalCode === null) {
      const exit = once(child, 'exit');
      child.kill('SIGKILL');
      await exit;
    }
    rmSync(folder, { recursive: true, force: true });
  };
  while (!(await accepts(port))) {
    if (child.exitCode !== null) {
      await stop();
      throw new Error(`haproxy ended with code ${child.exitCode}`);
    }
    await sleep(20);
  }
  return { url: `http://127.0.0.1:${port}`, stop };
}
