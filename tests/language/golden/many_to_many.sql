-- the second experiment of the paper: an aggregate over a join of two sources that both change
select x.carrier, avg(y.seats) as seats from flights x join flights y on x.origin = y.carrier group by x.carrier
