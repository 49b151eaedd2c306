/** A QR code. Its library is loaded with the first one. */
import { useEffect, useState } from 'preact/hooks';

export function QrCode({ text, label }: { text: string; label: string }) {
  const [source, setSource] = useState<string>();
  useEffect(() => {
    let isGone = false;
    import('qrcode').then(async ({ default: qrcode }) => {
      const svg = await qrcode.toString(text, { type: 'svg', errorCorrectionLevel: 'Q', margin: 4 });
      if (!isGone) setSource(`data:image/svg+xml,${encodeURIComponent(svg)}`);
    });
    return () => {
      isGone = true;
    };
  }, [text]);
  return source ? <img class="qr" src={source} alt={label} /> : null;
}
