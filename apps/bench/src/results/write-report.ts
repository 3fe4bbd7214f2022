/** Writes results as JSON, and as a page generated from that JSON. */
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { reportPage } from './report-page.js';
import { formatResults, parseResults, type Results } from './results.js';

/** @returns the paths of `report.json` and `report.html` */
export async function writeReport(folder: string, results: Results): Promise<readonly string[]> {
  await mkdir(folder, { recursive: true });
  const json = formatResults(results);
  const paths = [join(folder, 'report.json'), join(folder, 'report.html')] as const;
  await writeFile(paths[0], json);
  await writeFile(paths[1], await reportPage(parseResults(json, paths[0])));
  return paths;
}
