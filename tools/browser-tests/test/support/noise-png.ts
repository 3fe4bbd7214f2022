/** PNG files of random values, which compression does not make smaller. */
import { crc32, deflateSync } from 'node:zlib';

/** With red, green, blue and alpha. */
export function noisePng(width: number, height: number): Buffer {
  const rows = Buffer.alloc(height * (1 + 4 * width));
  let value = 1;
  for (let at = 0; at < rows.length; at++) {
    value = (value * 48271) % 0x7fffffff;
    rows[at] = at % (1 + 4 * width) === 0 ? 0 : value & 255;
  }
  const header = Buffer.from([0, 0, 0, 0, 0, 0, 0, 0, 8, 6, 0, 0, 0]);
  header.writeUInt32BE(width, 0);
  header.writeUInt32BE(height, 4);
  const signature = Buffer.from('\x89PNG\r\n\x1a\n', 'latin1');
  const data = deflateSync(rows, { level: 0 });
  return Buffer.concat([signature, chunk('IHDR', header), chunk('IDAT', data), chunk('IEND', Buffer.alloc(0))]);
}

function chunk(type: string, data: Buffer): Buffer {
  const named = Buffer.concat([Buffer.from(type), data]);
  const [length, checksum] = [Buffer.alloc(4), Buffer.alloc(4)];
  length.writeUInt32BE(data.length);
  checksum.writeUInt32BE(crc32(named));
  return Buffer.concat([length, named, checksum]);
}
