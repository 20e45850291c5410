-- Nexmark's queries as batch queries; each begins with its number.
-- q0
select auction, bidder, price, at from bid
-- q1
select auction, bidder, 0.908 * price as price, at from bid
-- q2
select auction, price from bid where mod(auction, 3) = 0
-- q3
select p.name, p.city, p.state, a.id from auction a join person p on a.seller = p.id where a.category = 10 and
p.state in ('or', 'id', 'ca')
-- q4
select category, avg(final) price from (select a.id, a.category, a.seller, a.expires, max(b.price) final from
auction a join bid b on a.id = b.auction and b.at between a.at and a.expires group by a.id, a.category, a.seller,
a.expires) group by category
-- q5
with counts as (select auction, window(at, '10 minutes', '5 minutes') w, count(*) n from bid group by 1, 2) select
c.auction, c.n, c.w.start from counts c join (select w, max(n) top from counts group by w) m on c.w = m.w and c.n >=
m.top
-- q6
select seller, avg(final) over (partition by seller order by expires rows between 10 preceding and current row)
price from (select a.id, a.category, a.seller, a.expires, max(b.price) final from auction a join bid b on a.id =
b.auction and b.at between a.at and a.expires group by a.id, a.category, a.seller, a.expires)
-- q7
select b.auction, b.price, b.bidder, b.at from bid b join (select window(at, '10 minutes') w, max(price) top from
bid group by 1) m on b.price = m.top and b.at >= m.w.start and b.at < m.w.end
-- q8
select p.id, p.name, p.w.start from (select id, name, window(at, '10 minutes') w from person) p join (select
distinct seller, window(at, '10 minutes') w from auction) a on p.id = a.seller and p.w = a.w
-- q9
select * from (select a.id, a.item, b.bidder, b.price, b.at, row_number() over (partition by a.id order by b.price
desc, b.at) n from auction a join bid b on a.id = b.auction and b.at between a.at and a.expires) where n <= 1
-- q12
select bidder, count(*) n, window(at, '10 minutes').start s from bid group by bidder, window(at, '10 minutes')
-- q14
select auction, bidder, 0.908 * price price, case when hour(at) between 8 and 18 then 'day' else 'night' end t,
length(url) - length(replace(url, 'c', '')) c from bid where 0.908 * price > 100
-- q15
select date(at) day, count(*) n, count(*) filter (where price < 300) low, count(distinct bidder) bidders,
count(distinct bidder) filter (where price < 300) low_bidders, count(distinct auction) auctions from bid group by 1
-- q16
select channel, date(at) day, max(date_format(at, 'HH:mm')) minute, count(*) n, count(distinct bidder) bidders,
count(distinct auction) filter (where price >= 300) high from bid group by 1, 2
-- q17
select auction, date(at) day, count(*) n, count(*) filter (where price < 300) low, min(price) least, max(price)
most, avg(price) mean, sum(price) total from bid group by 1, 2
-- q18
select * from (select *, row_number() over (partition by bidder, auction order by at desc) n from bid) where n = 1
-- q19
select * from (select *, row_number() over (partition by auction order by price desc) n from bid) where n <= 3
-- q20
select b.*, a.item, a.category from bid b join auction a on b.auction = a.id where a.category = 10
-- q21
select auction, price, case when lower(channel) = 'apple' then '0' else regexp_extract(url, 'channel_id=([^&]*)', 1)
end id from bid where channel is not null
-- q22
select auction, split_part(url, '/', 4) one, split_part(url, '/', 5) two from bid
