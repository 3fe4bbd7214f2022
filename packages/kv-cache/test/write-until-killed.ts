/** A process that writes versions of pages until it is killed, and says which versions it knows to be complete. */
import { openPageRecords } from '../src/index.js';
import { openPageFile } from '../src/index.node.js';

const [path, pageBytes, numPages] = [process.argv[2], Number(process.argv[3]), Number(process.argv[4])];
const records = await openPageRecords(await openPageFile(path), { pageBytes, blockSize: 2 });
const page = new Int32Array(pageBytes / 4);
for (let version = 1; ; version++) {
  await Promise.all(
    Array.from({ length: numPages }, async (_, pageId) => {
      page.fill(version * 100 + pageId);
      await records.write(pageId, new Uint8Array(page.buffer), [2 * pageId, 2 * pageId + 1]);
      process.stdout.write(`${pageId} ${version}\n`);
    }),
  );
}
