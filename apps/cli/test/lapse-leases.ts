/** Jobs of a killed process are free at once, where a test would wait until their leases lapse after 5 or 10 seconds. */
import { DatabaseSync } from 'node:sqlite';

/**
 * @param path of a queue in SQLite
 * @param pid of the process that was killed; workers have it at the end of their names
 */
export function lapseLeases(path: string, pid: number | undefined): void {
  const database = new DatabaseSync(path, { timeout: 10_000 });
  try {
    const lapse = database.prepare(`UPDATE jobs SET lease_until = 0 WHERE state = 'running' AND worker LIKE '%-' || ?`);
    lapse.run(String(pid));
  } finally {
    database.close();
  }
}
